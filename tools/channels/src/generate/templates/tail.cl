
/*
 * Loads the routing table of this card's router: for each card the port that leads there. An entry has the card in its lower
 * 16 bits, and the port above. Define CIRCUS_NO_TABLE for a board that loads its table in another way.
 */
#ifndef CIRCUS_NO_TABLE
channel uint circus_table __attribute__((depth(0))) __attribute__((io(CIRCUS_IO_TABLE)));

__attribute__((uses_global_work_offset(0)))
__attribute__((max_global_work_dim(0)))
__kernel void circus_load_table(__global const uchar *restrict ports, const uint cards)
{
    for (uint card = 0; card < cards; card++) {
        write_channel_intel(circus_table, card | (uint)ports[card] << 16);
    }
}
#endif

#endif
