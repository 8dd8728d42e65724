package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// modulePath is the import path of the module's root.
const modulePath = "github.com/ringcast/ringcast"

// File is one parsed Go file of the module.
type File struct {
	// Path is relative to the module's root, with slashes.
	Path string
	// Dir is path.Dir(Path): the package's directory, "." for the root.
	Dir   string
	Test  bool
	Lines int
	// Generated files are exempt from the size limit.
	Generated bool
	Hot       bool
	Source    []byte
	AST       *ast.File
	Fset      *token.FileSet
}

// Imports returns the import paths of the file with their lines.
func (f *File) Imports() []Import {
	var out []Import
	for _, spec := range f.AST.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		out = append(out, Import{Path: p, Line: f.Fset.Position(spec.Pos()).Line})
	}
	return out
}

// Import is one import of a file.
type Import struct {
	Path string
	Line int
}

// Finding is one broken rule.
type Finding struct {
	Path string
	Line int // 0 = the whole file
	What string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.What
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.What)
}

// Load parses every Go file below root. Nested modules, testdata and hidden directories are not
// part of the module and are left out.
func Load(root string) ([]*File, error) {
	var files []*File
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			base := d.Name()
			if rel != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor" || base == "bin") {
				return fs.SkipDir
			}
			if rel != "." {
				if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
					return fs.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := Parse(rel, src)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// Parse reads one file of the module; rel is its path from the root.
func Parse(rel string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{
		Path:      rel,
		Dir:       path.Dir(rel),
		Test:      strings.HasSuffix(rel, "_test.go"),
		Lines:     bytes.Count(src, []byte("\n")),
		Generated: ast.IsGenerated(tree),
		Hot:       bytes.HasPrefix(src, []byte("// Hot path.")),
		Source:    src,
		AST:       tree,
		Fset:      fset,
	}, nil
}

// Root finds the module's root above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("lint: no go.mod above the working directory")
		}
		dir = up
	}
}
