// Package wire turns bytes into meaning and back.
package wire
