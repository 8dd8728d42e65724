package ring

import "structs"

// The kernel's side of io_uring, from include/uapi/linux/io_uring.h: only what is used here.
// Sizes are tested.

const (
	opNop    = 0
	opWritev = 2
	opFsync  = 3

	sqeIODrain = 1 << 1 // starts when everything before it has completed
	sqeIOLink  = 1 << 2 // the next entry starts when this one has succeeded
	sqeAsync   = 1 << 4 // go to a worker at once

	fsyncDatasync = 1

	setupSubmitAll = 1 << 7 // an entry that is refused does not end the submission

	featSingleMmap = 1 << 0
	featExtArg     = 1 << 8

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	sqCQOverflow = 1 << 1

	registerProbe      = 8
	registerMaxWorkers = 19

	offSQRing = 0
	offCQRing = 0x8000000
	offSQEs   = 0x10000000

	probeOpSupported = 1
)

type sqe struct {
	_        structs.HostLayout
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	_        [3]uint64
}

type cqe struct {
	_        structs.HostLayout
	userData uint64
	res      int32
	flags    uint32
}

type sqOffsets struct {
	_                                                      structs.HostLayout
	head, tail, ringMask, ringEntries, flags, dropped, arr uint32
	_                                                      uint32
	_                                                      uint64
}

type cqOffsets struct {
	_                                                        structs.HostLayout
	head, tail, ringMask, ringEntries, overflow, cqes, flags uint32
	_                                                        uint32
	_                                                        uint64
}

type uringParams struct {
	_                         structs.HostLayout
	sqEntries, cqEntries      uint32
	flags                     uint32
	sqThreadCPU, sqThreadIdle uint32
	features                  uint32
	wqFd                      uint32
	_                         [3]uint32
	sqOff                     sqOffsets
	cqOff                     cqOffsets
}

type probeOp struct {
	_     structs.HostLayout
	op    uint8
	_     uint8
	flags uint16
	_     uint32
}

type uringProbe struct {
	_      structs.HostLayout
	lastOp uint8
	opsLen uint8
	_      uint16
	_      [3]uint32
	ops    [64]probeOp
}

func (p *uringProbe) supports(op int) bool {
	return op < int(p.opsLen) && p.ops[op].flags&probeOpSupported != 0
}

// getEventsArg carries the time that a wait may take.
type getEventsArg struct {
	_          structs.HostLayout
	sigmask    uint64
	sigmaskLen uint32
	_          uint32
	ts         uint64 // address of a timespec
}

type timespec struct {
	_         structs.HostLayout
	sec, nsec int64
}
