package core

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Where the logs of streams lie below a data directory: logs/streams/ID/SHARD.

func streamsDir(dataDir string) string { return filepath.Join(dataDir, "logs", "streams") }

// streamDirName is the last part of a stream's directory: its catalogue id, never its name.
func streamDirName(id uint64) string { return fmt.Sprintf("%016x", id) }

func shardDirName(shard uint32) string { return strconv.FormatUint(uint64(shard), 10) }

func (b *Broker) streamDir(id uint64) string {
	return filepath.Join(streamsDir(b.opts.DataDir), streamDirName(id))
}

func (b *Broker) shardDir(id uint64, shard uint32) string {
	return filepath.Join(b.streamDir(id), shardDirName(shard))
}

// logName is how the log of a shard is called where streams must not be named: its directory, below
// DATA/logs.
func logName(id uint64, shard uint32) string {
	return "streams/" + streamDirName(id) + "/" + shardDirName(shard)
}
