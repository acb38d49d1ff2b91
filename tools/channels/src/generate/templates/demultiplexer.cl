
channel uint16 circus_in __attribute__((depth(0))) __attribute__((io(CIRCUS_IO_IN)));

/* Gives each packet from the router to the receive kernel of its channel. It drops packets of other channels. */
__attribute__((max_global_work_dim(0)))
__attribute__((autorun))
__kernel void circus_demultiplexer(void)
{
    while (1) {
        union circus_packet packet;
        packet.whole = read_channel_intel(circus_in);
        switch (packet.words[0] >> CIRCUS_CHANNEL_SHIFT & 255) {
@CASES@        default:
            break;
        }
    }
}
