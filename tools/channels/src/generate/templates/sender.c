
cl_int circus_send_@NAME@(struct circus *circus, cl_uint destination, cl_ulong words, cl_ulong messages)
{
    return circus_send(circus, @INDEX@, destination, words, messages);
}
