/* The calls of CL/cl.h, for a card whose kernels are coroutines. */
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define ARGUMENT_BYTES 8

struct _cl_kernel {
    const struct kernel *kernel;
    char arguments[ARGUMENTS][ARGUMENT_BYTES];
    bool is_set[ARGUMENTS];
};

struct _cl_command_queue {
    bool is_done;
    bool is_used;
};

struct _cl_mem {
    char *bytes;
    size_t size;
};

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL) {
        abort();
    }
    return memory;
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error)
{
    cl_kernel kernel;
    size_t i;

    (void)program;
    for (i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, name) == 0 && !kernels[i].is_autorun) {
            kernel = allocate(sizeof *kernel);
            kernel->kernel = &kernels[i];
            *error = CL_SUCCESS;
            return kernel;
        }
    }
    *error = CL_INVALID_KERNEL_NAME;
    return NULL;
}

cl_int clReleaseKernel(cl_kernel kernel)
{
    free(kernel);
    return CL_SUCCESS;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value)
{
    if (index >= ARGUMENTS || kernel->kernel->bytes[index] == 0) {
        return CL_INVALID_ARG_INDEX;
    }
    if (bytes != kernel->kernel->bytes[index] || bytes > ARGUMENT_BYTES) {
        return CL_INVALID_ARG_SIZE;
    }
    memcpy(kernel->arguments[index], value, bytes);
    kernel->is_set[index] = true;
    return CL_SUCCESS;
}

cl_command_queue clCreateCommandQueue(
    cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *error)
{
    (void)context;
    (void)device;
    *error = properties == 0 ? CL_SUCCESS : CL_INVALID_VALUE;
    return allocate(sizeof(struct _cl_command_queue));
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    (void)clFinish(queue);
    free(queue);
    return CL_SUCCESS;
}

cl_int clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
    const size_t *local, cl_uint events, const cl_event *wait, cl_event *event)
{
    void *arguments[ARGUMENTS];
    cl_int error;
    size_t i;

    if (dimensions != 1 || offset != NULL || *global != 1 || *local != 1 || events != 0 || wait != NULL || event != NULL) {
        return CL_INVALID_VALUE;
    }
    for (i = 0; i < ARGUMENTS; i++) {
        if (kernel->is_set[i] != (kernel->kernel->bytes[i] > 0)) {
            return CL_INVALID_ARG_INDEX;
        }
        arguments[i] = kernel->arguments[i];
    }
    /* Kernels of one queue run one after the other. */
    error = clFinish(queue);
    if (error != CL_SUCCESS) {
        return error;
    }
    queue->is_used = true;
    queue->is_done = false;
    kernel_start(kernel->kernel, arguments, &queue->is_done);
    return CL_SUCCESS;
}

cl_int clEnqueueWriteBuffer(
    cl_command_queue queue, cl_mem memory, cl_bool is_blocking, size_t offset, size_t bytes, const void *from,
    cl_uint events, const cl_event *wait, cl_event *event)
{
    (void)queue;
    if (is_blocking != CL_TRUE || offset != 0 || bytes > memory->size || events != 0 || wait != NULL || event != NULL) {
        return CL_INVALID_VALUE;
    }
    memcpy(memory->bytes, from, bytes);
    return CL_SUCCESS;
}

cl_int clFlush(cl_command_queue queue)
{
    (void)queue;
    return CL_SUCCESS;
}

cl_int clFinish(cl_command_queue queue)
{
    if (queue->is_used && !queue->is_done) {
        run_until_idle();
    }
    /* A kernel that waits for ever is an error here. */
    return queue->is_used && !queue->is_done ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *from, cl_int *error)
{
    cl_mem memory = allocate(sizeof *memory);

    (void)context;
    *error = flags == CL_MEM_READ_ONLY && from == NULL ? CL_SUCCESS : CL_INVALID_VALUE;
    memory->bytes = allocate(bytes);
    memory->size = bytes;
    return memory;
}

cl_int clReleaseMemObject(cl_mem memory)
{
    free(memory->bytes);
    free(memory);
    return CL_SUCCESS;
}
