/* Calls of NCCL one after the other, with nothing between them, as nccl-tests makes them.

   The prototypes are those of nccl.h, whose enums are ints; NCCL itself is not needed to compile this. */

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define VERSION 1
#define IN_PROGRESS 7 /* of a communicator that does not block, which is waited for after the operation's last call */

enum shape { GROUP, PLAIN, ONE_NUMBER, TWO_NUMBERS, MESSAGE };

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

typedef int (*group_call)(void);
typedef int (*plain_call)(const void *, void *, size_t, int, void *, void *);
typedef int (*one_number_call)(const void *, void *, size_t, int, int, void *, void *);
typedef int (*two_numbers_call)(const void *, void *, size_t, int, int, int, void *, void *);
typedef int (*message_call)(void *, size_t, int, int, void *, void *);

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
    default:
        return ((message_call)c->function)(c->given + shift, c->count, c->dtype, c->first, c->communicator, c->stream);
    }
}

API int64_t allready_calls_version(void) { return VERSION; }

/* Starts an operation, which is num_calls calls, so many times: each time on the next of num_parts parts of the
   buffers, step_bytes apart, from part `first` on.  Adds to *done how often it did, and stops at the first code that is
   not 0: the code is returned, and *done counts that operation if its last call gave it. */
API int allready_calls_repeat(const struct call *calls, int64_t num_calls, int64_t num_parts, int64_t step_bytes,
                              int64_t first, int64_t count, int64_t *done) {
    int64_t part = first % num_parts;
    for (int64_t number = 0; number < count; number++) {
        for (int64_t at = 0; at < num_calls; at++) {
            int code = called(&calls[at], (ptrdiff_t)(part * step_bytes));
            int is_last = at + 1 == num_calls;
            if (code && (code != IN_PROGRESS || is_last)) {
                *done += is_last;
                return code;
            }
        }
        ++*done;
        part = part + 1 == num_parts ? 0 : part + 1;
    }
    return 0;
}
