/* Makes C of OpenCL C with Intel's channels: enough of it for generated device code. */
#ifndef OPENCL_C_H
#define OPENCL_C_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
/* Only the bits matter. */
typedef uint16_t half;

#define VECTOR(type, elements) typedef type type##elements __attribute__((vector_size(elements * sizeof(type))))
#define VECTORS(type) \
    VECTOR(type, 2);  \
    VECTOR(type, 4);  \
    VECTOR(type, 8);  \
    VECTOR(type, 16)
VECTORS(char);
VECTORS(uchar);
VECTORS(short);
VECTORS(ushort);
VECTORS(int);
VECTORS(uint);
VECTORS(long);
VECTORS(ulong);
VECTORS(half);
VECTORS(float);
VECTORS(double);

#define __kernel static
#define __global
#define channel static

/* A channel is a variable: its address names the queue, and its type is that of the words. */
#define read_channel_intel(from)                                                        \
    ({                                                                                  \
        __typeof__(from) shim_word_;                                                    \
        channel_read(&(from), &shim_word_, sizeof shim_word_);                          \
        shim_word_;                                                                     \
    })
#define read_channel_nb_intel(from, is_valid)                                           \
    ({                                                                                  \
        __typeof__(from) shim_word_;                                                    \
        memset(&shim_word_, 0, sizeof shim_word_);                                      \
        *(is_valid) = channel_try_read(&(from), &shim_word_, sizeof shim_word_);        \
        shim_word_;                                                                     \
    })
#define write_channel_intel(to, word)                                                   \
    do {                                                                                \
        const __typeof__(to) shim_word_ = (word);                                       \
        channel_write(&(to), &shim_word_, sizeof shim_word_);                           \
    } while (0)

#endif
