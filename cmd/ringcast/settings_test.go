package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// devDir makes what a ringcastd --dev leaves in its data directory.
func devDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"addr.json": `{"quic":"127.0.0.1:7001","http":"127.0.0.1:7002","pid":1}`,
		"token":     tokenFor("devtenant") + "\n",
		"ca.pem":    "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, "dev", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tokenFor(tenant string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"tid":"`+tenant+`"}`)) + ".x"
}

// Flags override the environment, it the file, it what a local broker has left, it the defaults.
func TestSettingsOverrideEachOtherInOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("addr = \"file:1\"\nnamespace = \"from-file\"\ntimeout = \"3s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := devDir(t)
	cases := []struct {
		name, env, file string
		args            []string
		addr, namespace string
	}{
		{name: "defaults", addr: "127.0.0.1:5000", namespace: "default"},
		{name: "dev", args: []string{"--dev-dir", dir}, addr: "127.0.0.1:7001", namespace: "default"},
		{name: "file", file: file, args: []string{"--dev-dir", dir}, addr: "file:1", namespace: "from-file"},
		{name: "environment", env: "env:1", file: file, addr: "env:1", namespace: "from-file"},
		{name: "flag", env: "env:1", file: file, args: []string{"--addr", "flag:1", "--namespace=n"}, addr: "flag:1", namespace: "n"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("RINGCAST_TOKEN", tokenFor("acme"))
			if tc.env != "" {
				t.Setenv("RINGCAST_ADDR", tc.env)
			}
			if tc.file != "" {
				t.Setenv("RINGCAST_CLI_CONFIG", tc.file)
			}
			s := parseSettings(t, tc.args...)
			r, err := s.resolve()
			if err != nil {
				t.Fatal(err)
			}
			if r.addr != tc.addr || r.namespace != tc.namespace || r.tenant != "acme" {
				t.Errorf("%+v", r)
			}
			if tc.file != "" && s.Timeout != 3*time.Second {
				t.Errorf("timeout %s", s.Timeout)
			}
		})
	}
}

func parseSettings(t *testing.T, args ...string) *Settings {
	t.Helper()
	var c cli
	file, err := loadFile(args)
	if err != nil {
		t.Fatal(err)
	}
	k, err := newParser(t.Context(), &c, &environment{}, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse(append(args, "version")); err != nil {
		t.Fatal(err)
	}
	return &c.Settings
}

// The token and the CA of the local broker are for the local broker: they are sent nowhere else.
func TestDevTokenIsForTheLocalBrokerOnly(t *testing.T) {
	s := &Settings{DevDir: devDir(t)}
	r, err := s.resolve()
	if err != nil || r.tenant != "devtenant" || r.ca == "" || r.http != "127.0.0.1:7002" {
		t.Fatalf("%+v %v", r, err)
	}
	for _, addr := range []string{"broker.example:5000", "10.0.0.1:5000", "[2001:db8::1]:5000"} {
		s.Addr = addr
		if r, err := s.resolve(); err == nil {
			t.Errorf("%s: %+v", addr, r)
		}
	}
	s.Token = tokenFor("acme")
	if r, err := s.resolve(); err != nil || r.ca != "" || r.serverName != "2001:db8::1" {
		t.Errorf("%+v %v", r, err)
	}
	s.Addr = "localhost:5000"
	if r, err := s.resolve(); err != nil || r.ca == "" || r.token != s.Token {
		t.Errorf("%+v %v", r, err)
	}
}

// A configuration file that cannot be meant is refused, with what is wrong.
func TestBadConfigurationFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"adr = \"x\"":    "unknown key adr; known are addr",
		"addr = \n":      "line 1",
		"timeout = true": "must be a string",
	} {
		file := filepath.Join(dir, "c.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if e := failed(t, 2, "--config", file, "version"); !strings.Contains(e.Message, want) || e.Code != "usage" {
			t.Errorf("%q: %+v", text, e)
		}
	}
	if e := failed(t, 2, "--config="+filepath.Join(dir, "none"), "version"); !strings.Contains(e.Message, "none") {
		t.Errorf("%+v", e)
	}
}
