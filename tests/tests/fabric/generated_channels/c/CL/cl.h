/* The part of OpenCL's API that generated host code uses. */
#ifndef CL_H
#define CL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef uint8_t cl_uchar;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;
typedef cl_bitfield cl_mem_flags;
typedef cl_bitfield cl_command_queue_properties;

typedef struct _cl_context *cl_context;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_event *cl_event;

#define CL_SUCCESS 0
#define CL_OUT_OF_RESOURCES -5
#define CL_INVALID_VALUE -30
#define CL_INVALID_KERNEL_NAME -46
#define CL_INVALID_KERNEL -48
#define CL_INVALID_ARG_INDEX -49
#define CL_INVALID_ARG_SIZE -51
#define CL_TRUE 1
#define CL_MEM_READ_ONLY (1 << 2)

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error);
cl_int clReleaseKernel(cl_kernel kernel);
cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value);
cl_command_queue clCreateCommandQueue(
    cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *error);
cl_int clReleaseCommandQueue(cl_command_queue queue);
cl_int clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
    const size_t *local, cl_uint events, const cl_event *wait, cl_event *event);
cl_int clEnqueueWriteBuffer(
    cl_command_queue queue, cl_mem memory, cl_bool is_blocking, size_t offset, size_t bytes, const void *from,
    cl_uint events, const cl_event *wait, cl_event *event);
cl_int clFlush(cl_command_queue queue);
cl_int clFinish(cl_command_queue queue);
cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *from, cl_int *error);
cl_int clReleaseMemObject(cl_mem memory);

#endif
