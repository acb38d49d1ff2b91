
channel uint16 circus_out __attribute__((depth(0))) __attribute__((io(CIRCUS_IO_OUT)));

/* Gives the packets of all send kernels to the router, in turn. It looks at all of them in every cycle. */
__attribute__((max_global_work_dim(0)))
__attribute__((autorun))
__kernel void circus_multiplexer(void)
{
    uint16 held[@COUNT@];
    bool is_held[@COUNT@] = {0};
    uint turn = 0;

    while (1) {
@READS@
        /* The first from `turn` on, or else the first of all. */
        uint next = @COUNT@;
        uint first = @COUNT@;
        #pragma unroll
        for (uint i = @COUNT@; i > 0; i--) {
            if (is_held[i - 1]) {
                first = i - 1;
                next = i - 1 >= turn ? i - 1 : next;
            }
        }
        const uint granted = next < @COUNT@ ? next : first;
        if (granted < @COUNT@) {
            write_channel_intel(circus_out, held[granted]);
            is_held[granted] = false;
            turn = granted + 1;
        }
    }
}
