
/* No variable stands here that the channel could share its name with. */
@TYPE@ circus_take_@NAME@(void)
{
    return read_channel_intel(@NAME@);
}

/*
 * Sends `messages` messages of `words` words each from @NAME@ to the card `destination`. Payloads are full, except at the
 * end of a message.
 */
__attribute__((uses_global_work_offset(0)))
__attribute__((max_global_work_dim(0)))
__kernel void circus_send_@NAME@(const uint destination, const ulong words, const ulong messages)
{
    const uint header = destination | @ID@u << CIRCUS_CHANNEL_SHIFT;
    @UNIT@ buffer[@PAYLOAD@ + @UNITS@] = {0};
    uint level = 0;
    ulong messages_left = words > 0 ? messages : 0;
    ulong words_left = words;
    bool is_ending = false;
    bool is_first = true;
    uint number = 0;

    while (messages_left > 0) {
        if (level < @PAYLOAD@ && !is_ending) {
            union {
                @TYPE@ whole;
                @UNIT@ units[@UNITS@];
            } word;
            word.whole = circus_take_@NAME@();
            #pragma unroll
            for (uint i = 0; i < @UNITS@; i++) {
                buffer[level + i] = word.units[i];
            }
            level += @UNITS@;
            words_left--;
            is_ending = words_left == 0;
        }
        if (level >= @PAYLOAD@ || is_ending) {
            const uint count = level < @PAYLOAD@ ? level : @PAYLOAD@;
            const bool is_last = is_ending && level <= @PAYLOAD@;
            union circus_packet packet;
            packet.words[0] = header | count * @UNIT_BYTES@ << CIRCUS_LENGTH_SHIFT | (uint)is_last << CIRCUS_LAST_SHIFT;
            packet.words[0] |= (uint)is_first << CIRCUS_FIRST_SHIFT | number << CIRCUS_NUMBER_SHIFT;
            #pragma unroll
            for (uint i = 0; i < @PAYLOAD@; i++) {
                packet.@FIELD@[@HEADER@ + i] = i < count ? buffer[i] : 0;
            }
            write_channel_intel(circus_packets_@NAME@, packet.whole);
            #pragma unroll
            for (uint i = 0; i < @UNITS@; i++) {
                buffer[i] = buffer[@PAYLOAD@ + i];
            }
            level -= count;
            is_first = is_last;
            number = (number + 1) & 255;
            if (is_last) {
                is_ending = false;
                words_left = words;
                messages_left--;
            }
        }
    }
}
