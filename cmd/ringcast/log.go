package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringcast/ringcast/core"
	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
	"github.com/ringcast/ringcast/wire"
)

// logCmd are the commands for a data directory on which no broker runs.
type logCmd struct {
	Inspect logInspect `cmd:"" help:"Show what is on the disk, and what the next start of the broker would do with it."`
	Verify  logVerify  `cmd:"" help:"Read every byte of logs and check it. Exit code 1 when something is damaged."`
	Repair  logRepair  `cmd:"" help:"Do what a start does with unfinished ends and indexes; with --truncate-at-damage give up what is damaged."`
}

// logTarget says which logs a command is about.
type logTarget struct {
	Streams  []string `arg:"" optional:"" name:"stream" help:"NAME, TENANT/NAMESPACE/NAME, or the id that its directory is named after (16 hex digits). Default: every stream."`
	DataDir  string   `env:"RINGCAST_DATA_DIR" default:"ringcast-data" placeholder:"DIR" help:"The broker's data directory, or a copy of one."`
	LogDir   string   `placeholder:"DIR" help:"One log directory (with .seg files in it) instead of a data directory."`
	Shard    int      `default:"-1" placeholder:"N" help:"This shard only."`
	Progress string   `enum:"auto,always,never" default:"auto" help:"Progress bar: auto (on a terminal), always, never."`
}

// offlineLogs are the logs that a target comes to, and the lock on their data directory.
type offlineLogs struct {
	logs []core.StoredLog
	lock io.Closer // nil when it was not taken
}

func (o *offlineLogs) close() {
	if o.lock != nil {
		o.lock.Close() // a lock ends with its file, whatever Close says
	}
}

// openLogs locks the data directory, as far as that is possible without writing (write: at all), and
// finds the logs. What could not be done is said on standard error.
func (t *logTarget) openLogs(env *environment, s *Settings, write bool) (*offlineLogs, error) {
	if t.LogDir != "" && len(t.Streams) > 0 {
		return nil, usageError(errors.New("--log-dir is one log: leave the stream out"))
	}
	dataDir := t.DataDir
	if t.LogDir != "" {
		dir, err := logDirectory(t.LogDir)
		if err != nil {
			return nil, err
		}
		t.LogDir = dir
		dataDir = dataDirAround(dir)
	} else if info, err := os.Stat(dataDir); err != nil || !info.IsDir() {
		return nil, &noDataDir{dataDir}
	}
	out := &offlineLogs{}
	if dataDir == "" {
		env.warn("%s lies in no data directory: whether a broker uses it cannot be told", t.LogDir)
	} else {
		lock, why, err := core.LockDataDir(ring.OS(), dataDir, write)
		if err != nil {
			return nil, err
		}
		if out.lock = lock; lock == nil {
			env.warn("%s is not locked: %s. If a broker runs on it, what is shown may be changing", dataDir, why)
		}
	}
	logs, err := t.find(env, s, dataDir)
	if err != nil {
		out.close()
		return nil, err
	}
	out.logs = logs
	return out, nil
}

// find lists the logs that are meant.
func (t *logTarget) find(env *environment, s *Settings, dataDir string) ([]core.StoredLog, error) {
	var all []core.StoredLog
	if dataDir != "" {
		var catalogue, err error
		if all, catalogue, err = core.StoredLogs(ring.OS(), dataDir); err != nil {
			return nil, err
		}
		if catalogue != nil {
			env.warn("streams are shown by their ids: %v", catalogue)
		}
	}
	if t.LogDir != "" {
		i := slices.IndexFunc(all, func(l core.StoredLog) bool { return sameFile(l.Dir, t.LogDir) })
		if i >= 0 {
			return all[i : i+1], nil
		}
		id, shard, _, err := log.Identify(log.Options{FS: ring.OS(), Dir: t.LogDir, Pool: framePool()})
		if err != nil {
			return nil, err
		}
		return []core.StoredLog{{Dir: t.LogDir, ID: id, Shard: shard}}, nil
	}
	var out []core.StoredLog
	if len(t.Streams) == 0 {
		out = all
	}
	for _, name := range t.Streams {
		match, err := named(name, s)
		if err != nil {
			return nil, err
		}
		n := len(out)
		for _, l := range all {
			if match(&l) {
				out = append(out, l)
			}
		}
		if len(out) == n {
			return nil, &noSuchLog{fmt.Sprintf("no log of a stream %q in %s", name, dataDir)}
		}
	}
	if t.Shard >= 0 {
		out = slices.DeleteFunc(out, func(l core.StoredLog) bool { return l.Shard != uint32(t.Shard) })
		if len(out) == 0 {
			return nil, &noSuchLog{fmt.Sprintf("no shard %d there", t.Shard)}
		}
	}
	return out, nil
}

// named returns what finds the logs of a stream by what a person calls it.
func named(name string, s *Settings) (func(l *core.StoredLog) bool, error) {
	if id, err := strconv.ParseUint(name, 16, 64); err == nil && len(name) == 16 {
		return func(l *core.StoredLog) bool { return l.ID == id }, nil
	}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 1:
		return func(l *core.StoredLog) bool {
			return l.Stream == name && l.Namespace == s.Namespace && (s.Tenant == "" || l.Tenant == s.Tenant)
		}, nil
	case 3:
		return func(l *core.StoredLog) bool { return l.Name() == name }, nil
	}
	return nil, usageError(fmt.Errorf("stream %q: want NAME, TENANT/NAMESPACE/NAME or an id of 16 hex digits", name))
}

// logDirectory makes the path of a log directory absolute and without links.
func logDirectory(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", usageError(fmt.Errorf("--log-dir %s is not a directory", name))
	}
	return dir, nil
}

// dataDirAround is the data directory that a log directory lies in (DATA/logs/KIND/ID/SHARD), "" when
// it lies in none.
func dataDirAround(dir string) string {
	logs := filepath.Dir(filepath.Dir(filepath.Dir(dir)))
	if filepath.Base(logs) != "logs" {
		return ""
	}
	return filepath.Dir(logs)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// framePool is what the options of a log ask for; nothing here reads frames.
var framePool = sync.OnceValue(func() *wire.Pool { return wire.NewPool(1 << 20) })

// options are those to look at a log with.
func logOptions(l *core.StoredLog) log.Options {
	return log.Options{FS: ring.OS(), Dir: l.Dir, CatalogueID: l.ID, Shard: l.Shard, Pool: framePool()}
}

// title names a log for people.
func title(l *core.StoredLog) string {
	name := l.Name()
	if name == "" {
		name = fmt.Sprintf("%016x (not in the catalogue)", l.ID)
	}
	return fmt.Sprintf("%s shard %d", shorten(name, nameColumns), l.Shard)
}

// nameColumns is how much of a line a stream's name may take.
const nameColumns = 48

// lineColumns is how wide text is.
const lineColumns = 98

// shorten cuts the middle of a name that would break a table.
func shorten(s string, columns int) string {
	r := []rune(s)
	if len(r) <= columns {
		return s
	}
	half := (columns - 1) / 2
	return string(r[:half]) + "…" + string(r[len(r)-(columns-1-half):])
}

// fileBytes is what there is to read of a log.
func fileBytes(l *core.StoredLog) (n int64) {
	names, _ := os.ReadDir(l.Dir) // a directory that cannot be read is told later
	for _, e := range names {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".seg") {
			n += info.Size()
		}
	}
	return n
}

// canceled turns the end of ctx into its own error, without what was being done around it.
func canceled(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// noDataDir, noSuchLog and damaged are what these commands end with; failure.go has what to do.
type noDataDir struct{ dir string }

func (e *noDataDir) Error() string { return "there is no data directory " + e.dir }

type noSuchLog struct{ what string }

func (e *noSuchLog) Error() string { return e.what }

// damaged says that n of all logs are damaged.
type damaged struct{ n, all int }

func (e *damaged) Error() string {
	if e.all == 1 {
		return "the log is damaged"
	}
	verb := "are"
	if e.n == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d logs %s damaged", e.n, e.all, verb)
}
