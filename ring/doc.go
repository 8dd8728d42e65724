// Package ring is the only door to the disk.
package ring
