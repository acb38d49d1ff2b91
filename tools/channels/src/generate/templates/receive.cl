
/* No variable stands here that the channel could share its name with. */
void circus_put_@NAME@(const @TYPE@ circus_word)
{
    write_channel_intel(@NAME@, circus_word);
}

/*
 * Takes payloads out of packets, and cuts them into the words of @NAME@. If the last word of a message is not whole,
 * zeros complete it. Words that cross packets begin nowhere known behind a packet that is missing, so it drops the rest of
 * the message.
 */
__attribute__((max_global_work_dim(0)))
__attribute__((autorun))
__kernel void circus_receive_@NAME@(void)
{
    @UNIT@ buffer[@PAYLOAD@ + @UNITS@] = {0};
    uint level = 0;
    bool is_ending = false;
    bool is_within = false;
    uint number = 0;

    while (1) {
        if (level < @UNITS@ && !is_ending) {
            union circus_packet packet;
            packet.whole = read_channel_intel(circus_packets_@NAME@);
            /* A bit error can give any length. */
            const uint bytes = packet.words[0] >> CIRCUS_LENGTH_SHIFT & 63;
            const uint count = bytes < 60 ? (bytes + @UNIT_BYTES@ - 1) / @UNIT_BYTES@ : @PAYLOAD@;
            const uint found = packet.words[0] >> CIRCUS_NUMBER_SHIFT & 255;
            const bool is_first = packet.words[0] >> CIRCUS_FIRST_SHIFT & 1;
            const bool is_last = packet.words[0] >> CIRCUS_LAST_SHIFT & 1;
            const bool goes_on = is_within && found == number && !is_first;
            const bool is_taken = goes_on || is_first || @PAYLOAD@ % @UNITS@ == 0;
            level = goes_on ? level : 0;
            #pragma unroll
            for (uint i = 0; i < @PAYLOAD@; i++) {
                buffer[level + i] = packet.@FIELD@[@HEADER@ + i];
            }
            level += is_taken ? count : 0;
            is_ending = is_taken && is_last;
            is_within = is_taken && !is_last;
            number = (found + 1) & 255;
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
