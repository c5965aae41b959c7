// Copies past the caches: whole cache lines of the destination are written without being read first. For what is so
// large that nothing of it is in a cache when it is used again. Where a processor has no such stores these are plain
// copies.
#ifndef RESHARD_RUNTIME_HOST_STREAM_ROWS_H_
#define RESHARD_RUNTIME_HOST_STREAM_ROWS_H_

#include <cstdint>

namespace reshard::host {

// The vectors that lines are copied with. Every x86-64 has those of 16 bytes.
enum class Vectors { k16Bytes, k32Bytes };

// The widest ones that this processor has.
Vectors WidestVectors();

// Copies `rows` rows of `bytes` bytes, 64 or more; row i goes from from + i*from_step to to + i*to_step. Other threads
// see them only once FinishStreaming has been called. The rows are prefetched some time before their turn.
void StreamRows(const char* from, char* to, int64_t rows, int64_t bytes, int64_t from_step, int64_t to_step,
                Vectors vectors = WidestVectors());

// Copies one row of at least one byte, all of it in the nearest cache already, without prefetching.
void StreamNear(const char* from, char* to, int64_t bytes);

// Orders what this thread has streamed before anything that it writes afterwards.
void FinishStreaming();

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_STREAM_ROWS_H_
