
static cl_int circus_send(struct circus *circus, cl_uint kernel, cl_uint destination, cl_ulong words, cl_ulong messages)
{
    cl_int error;

    if (destination >> CIRCUS_DESTINATION_BITS != 0 || words == 0) {
        return CL_INVALID_VALUE;
    }
    error = clSetKernelArg(circus->kernels[kernel], 0, sizeof destination, &destination);
    if (error == CL_SUCCESS) {
        error = clSetKernelArg(circus->kernels[kernel], 1, sizeof words, &words);
    }
    if (error == CL_SUCCESS) {
        error = clSetKernelArg(circus->kernels[kernel], 2, sizeof messages, &messages);
    }
    return error == CL_SUCCESS ? circus_start(circus, kernel) : error;
}
