        if (!is_held[@INDEX@]) {
            held[@INDEX@] = read_channel_nb_intel(circus_packets_@NAME@, &is_held[@INDEX@]);
        }
