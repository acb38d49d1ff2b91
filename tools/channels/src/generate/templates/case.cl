        case @ID@:
            write_channel_intel(circus_packets_@NAME@, packet.whole);
            break;
