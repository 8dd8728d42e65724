// Package demo is what "ringcast demo" and "make demo" run: the whole of a broker's main job on a
// real text, with the broker as a process of its own that is killed in the middle.
//
//	text file --half--> publisher A --+                 +--> live subscriber 1 --> one hash per publisher
//	          --half--> publisher B --+--> ringcastd ---+--> live subscriber 2 --> one hash per publisher
//	                                       |  SIGKILL, restart
//	                                       +--> subscriber from the start -----> one hash per publisher
//
// Records carry the tag of their publisher; how the two interleave is free, so hashes are compared per
// publisher: over its lines, in order. A missing, doubled, swapped or changed record changes a hash.
//
// The text is Carroll's (1865, public domain), embedded and repeated with line numbers: the same
// bytes at every run. Run owns the broker process and the directory and leaves neither behind, also
// when it fails or is interrupted; its goroutines end before it returns.
//
// It fails with what differed, with what the broker wrote last if the broker failed, and never reports
// a success that it did not compare. It is no benchmark: the rates are of this run, with two publishers
// and two readers on the same cores as the broker.
package demo
