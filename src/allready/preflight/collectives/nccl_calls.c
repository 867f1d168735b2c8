/* Calls of NCCL one after the other, with nothing between them, and the time that they take, as nccl-tests has it.

   The prototypes are those of nccl.h and cuda.h, whose enums are ints; neither is needed to compile this. */

#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define VERSION 2
#define NOT_READY 600 /* of a stream that has work left; the same in the driver, the runtime and HIP */

enum shape { GROUP, PLAIN, ONE_NUMBER, TWO_NUMBERS, MESSAGE, LAUNCH };

struct call {
    void *function;
    char *given;
    char *out;
    uint64_t count;
    void *communicator;
    void *stream;
    int32_t shape;
    int32_t dtype;
    int32_t first;
    int32_t second;
};

/* An operation, which is num_calls calls: each time on the next of num_parts parts of the buffers, step_bytes apart. */
struct work {
    const struct call *calls;
    int64_t num_calls;
    int64_t num_parts;
    int64_t step_bytes;
    int64_t num_done;
};

struct waiting {
    int (*query)(void *);
    int (*async_error)(void *, int *);
    void *stream;
    void *communicator;
};

typedef int (*group_call)(void);
typedef int (*plain_call)(const void *, void *, size_t, int, void *, void *);
typedef int (*one_number_call)(const void *, void *, size_t, int, int, void *, void *);
typedef int (*two_numbers_call)(const void *, void *, size_t, int, int, int, void *, void *);
typedef int (*message_call)(void *, size_t, int, int, void *, void *);
typedef int (*launch_call)(void *, void *);

static int called(const struct call *c, ptrdiff_t shift) {
    switch (c->shape) {
    case GROUP:
        return ((group_call)c->function)();
    case PLAIN:
        return ((plain_call)c->function)(c->given + shift, c->out + shift, c->count, c->dtype, c->communicator, c->stream);
    case ONE_NUMBER:
        return ((one_number_call)c->function)(c->given + shift, c->out + shift, c->count, c->dtype, c->first,
                                              c->communicator, c->stream);
    case TWO_NUMBERS:
        return ((two_numbers_call)c->function)(c->given + shift, c->out + shift, c->count, c->dtype, c->first, c->second,
                                               c->communicator, c->stream);
    case MESSAGE:
        return ((message_call)c->function)(c->given + shift, c->count, c->dtype, c->first, c->communicator, c->stream);
    default:
        return -((launch_call)c->function)(c->given, c->stream);
    }
}

API int64_t allready_calls_version(void) { return VERSION; }

/* Starts an operation so many times.  Returns the first code that is not 0; one of the driver less than 0. */
API int allready_calls_repeat(struct work *work, int64_t count) {
    int64_t part = work->num_done % work->num_parts;
    for (int64_t number = 0; number < count; number++) {
        for (int64_t at = 0; at < work->num_calls; at++) {
            int code = called(&work->calls[at], (ptrdiff_t)(part * work->step_bytes));
            if (code)
                return code;
        }
        work->num_done++;
        part = part + 1 == work->num_parts ? 0 : part + 1;
    }
    return 0;
}

/* Waits until a stream has nothing left to do.  Asks again and again: waking up takes as long as a small operation.
   Has no end of its own: the agent ends this process when the deadline of the size has passed. */
static int waited(const struct waiting *waiting) {
    for (;;) {
        int code = waiting->query(waiting->stream);
        if (code != NOT_READY)
            return -code;
        int in_background = 0;
        code = waiting->async_error(waiting->communicator, &in_background);
        if (code || in_background)
            return code ? code : in_background;
        sched_yield();
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The nanoseconds from the first call of `work` until the stream has nothing left to do.  Before them one `first` is
   waited for, which ends on all ranks at the same time.  Both begin at the first part: what lies in the GPU's cache is
   what nccl-tests finds there. */
API int allready_calls_timed(struct work *first, struct work *work, int64_t count, const struct waiting *waiting,
                             int64_t *took_ns) {
    first->num_done = 0;
    int code = waited(waiting);
    if (code || (code = allready_calls_repeat(first, 1)) || (code = waited(waiting)))
        return code;
    work->num_done = 0;
    int64_t began_ns = now_ns();
    if ((code = allready_calls_repeat(work, count)) || (code = waited(waiting)))
        return code;
    *took_ns = now_ns() - began_ns;
    return 0;
}
