
/*
 * Starts the send kernel of @NAME@: `messages` messages of `words` words (@TYPE@) to the card `destination`. It does not
 * wait. Calls for one channel take effect one after the other.
 */
cl_int circus_send_@NAME@(struct circus *circus, cl_uint destination, cl_ulong words, cl_ulong messages);
