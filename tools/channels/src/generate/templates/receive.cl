
/* No variable stands here that the channel could share its name with. */
void circus_put_@NAME@(const @TYPE@ circus_word)
{
    write_channel_intel(@NAME@, circus_word);
}

/*
 * Takes payloads out of packets, and cuts them into the words of @NAME@. If the last word of a message is not whole,
 * zeros complete it.
 */
__attribute__((max_global_work_dim(0)))
__attribute__((autorun))
__kernel void circus_receive_@NAME@(void)
{
    @UNIT@ buffer[@PAYLOAD@ + @UNITS@] = {0};
    uint level = 0;
    bool is_ending = false;

    while (1) {
        if (level < @UNITS@ && !is_ending) {
            union circus_packet packet;
            packet.whole = read_channel_intel(circus_packets_@NAME@);
            /* A bit error can give any length. */
            const uint bytes = packet.words[0] >> CIRCUS_LENGTH_SHIFT & 63;
            const uint count = bytes < 60 ? (bytes + @UNIT_BYTES@ - 1) / @UNIT_BYTES@ : @PAYLOAD@;
            #pragma unroll
            for (uint i = 0; i < @PAYLOAD@; i++) {
                buffer[level + i] = packet.@FIELD@[@HEADER@ + i];
            }
            level += count;
            is_ending = packet.words[0] >> CIRCUS_LAST_SHIFT & 1;
        }
        if (level >= @UNITS@ || is_ending) {
            union {
                @TYPE@ whole;
                @UNIT@ units[@UNITS@];
            } word;
            #pragma unroll
            for (uint i = 0; i < @UNITS@; i++) {
                word.units[i] = i < level ? buffer[i] : 0;
            }
            if (level > 0) {
                circus_put_@NAME@(word.whole);
            }
            #pragma unroll
            for (uint i = 0; i < @PAYLOAD@; i++) {
                buffer[i] = buffer[@UNITS@ + i];
            }
            is_ending = is_ending && level > @UNITS@;
            level = level > @UNITS@ ? level - @UNITS@ : 0;
        }
    }
}
