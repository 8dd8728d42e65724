package main

import (
	"errors"

	"github.com/ringcast/ringcast/log"
	"github.com/ringcast/ringcast/ring"
)

// explainLog names an error of the log commands; false when it is none.
func explainLog(err error, b *reportBody) bool {
	_, noDir := errors.AsType[*noDataDir](err)
	_, noLog := errors.AsType[*noSuchLog](err)
	_, bad := errors.AsType[*damaged](err)
	_, corrupt := errors.AsType[*log.CorruptError](err)
	_, unconfirmed := errors.AsType[*notConfirmed](err)
	disk, _ := errors.AsType[*ring.Error](err)
	switch {
	case noDir:
		b.Code, b.Hint = "no_data_dir", "Give --data-dir DIR (or RINGCAST_DATA_DIR): what the broker's data_dir is set to. --log-dir DIR takes a single log."
	case noLog:
		b.Code, b.Hint = "not_found", "ringcast log inspect without a name lists what there is."
	case errors.Is(err, ring.ErrLocked):
		b.Code, b.Hint = "locked", "A broker runs on the data directory, or another ringcast log does. Nothing was changed. Stop it first, or work on a copy."
	case bad:
		b.Code, b.Hint = "damaged", "Restore the log from a copy. Without one, ringcast log repair --truncate-at-damage --dry-run shows what would be lost."
	case errors.Is(err, log.ErrForeign):
		b.Code, b.Hint = "foreign_segment", "Nothing was changed. Move that file out of the directory, to where it belongs."
	case errors.Is(err, log.ErrNewer):
		b.Code, b.Hint = "newer_version", "Nothing was changed. Use the version of ringcast that wrote it; this one never cuts what it cannot read."
	case unconfirmed:
		b.Code, b.Hint = "not_confirmed", "Nothing was changed. --yes does it, --dry-run shows it."
	case corrupt:
		b.Code, b.Hint = "damaged", "Nothing more was changed. ringcast log verify shows every damaged place."
	case disk != nil && errors.Is(err, ring.ErrNoSpace):
		b.Code, b.Hint = "no_space", "--backup-dir DIR saves the files on another disk, --no-backup does not save them. A repair that was begun is finished by calling it again."
	case disk != nil:
		b.Code = "file"
	default:
		return false
	}
	return true
}
