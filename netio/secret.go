package netio

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Secret returns the keys of ServerOptions that must outlive a restart (HZ-36), derived from a secret
// kept in file, which is made on first use with mode 0600. A file that holds something else is an
// error: a new secret would leave old clients waiting for their idle timeout.
func Secret(file string) (statelessReset, token []byte, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails
		text = []byte(hex.EncodeToString(secret) + "\n")
		if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
			err = replaceFile(file, text, 0o600)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("netio: listener secret: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != 32 {
		return nil, nil, fmt.Errorf("netio: listener secret %s is not 64 hex digits", file)
	}
	if statelessReset, err = hkdf.Key(sha256.New, secret, nil, "ringcast stateless reset", 32); err != nil {
		return nil, nil, fmt.Errorf("netio: listener secret: %w", err)
	}
	if token, err = hkdf.Key(sha256.New, secret, nil, "ringcast address token", 32); err != nil {
		return nil, nil, fmt.Errorf("netio: listener secret: %w", err)
	}
	return statelessReset, token, nil
}

// replaceFile writes name as a whole or not at all, and returns when it is on disk.
func replaceFile(name string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
