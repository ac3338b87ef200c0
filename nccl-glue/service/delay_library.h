/* The C interface of a delay model of one's own: a shared library that exports these three functions. Times are
 * picoseconds. They are called from the worker of the shard: they must not block. */
#ifndef NBX_DELAY_LIBRARY_H
#define NBX_DELAY_LIBRARY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 for this interface. */
int32_t nbx_delay_abi(void);
/* How long after the real rank's call ghost rank `rank` of a world of `ranks` calls collective number `sequence`. */
int64_t nbx_delay_skew(int32_t rank, int32_t ranks, uint64_t sequence);
/* From one ghost's send of a message of `bytes` to the next ghost's; `reduces` is 1 where it adds its own data. The
 * first ghost behind a real rank sends a message on at once. */
int64_t nbx_delay_hop(uint64_t bytes, int32_t reduces);

#ifdef __cplusplus
}
#endif

#endif
