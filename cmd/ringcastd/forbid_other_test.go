//go:build !linux

package main

import "testing"

func forbidIOURing(t *testing.T) []string {
	t.Skip("io_uring exists on Linux only")
	return nil
}

func becomeForbidden() {}
