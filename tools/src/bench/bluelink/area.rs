//! Published data that no simulation gives: area on a Stratix V (tables I and II of the BlueLink paper).

/// Published results that this command does not reproduce.
pub(super) const NOT_REPRODUCED: [&str; 3] = [
    "area, tables I and II (LUTs, registers, memory bits): needs synthesis; --svg draws both as published",
    "area used when all 48 transceivers of a Stratix V are used, figure 5: a product of table I",
    "the neural simulation of two million neurons, section VIII.A: no application model",
];

/// A line of an area table: system, link rate, LUTs, registers, memory bits; as printed.
type Line = [&'static str; 5];

pub(super) const HEADER: Line = ["system", "link rate", "LUTs", "registers", "memory bits"];

/// Table II: implementations on a Stratix V.
pub(super) const TABLE_2: [Line; 11] = [
    ["BlueLink reliability layer", "10G", "1663", "1277", "2090"],
    ["BlueLink link layer", "10G", "179", "413", "960"],
    ["BlueLink PHY", "10G", "167", "248", "0"],
    ["BlueLink in total", "10G", "2009", "1938", "3050"],
    ["BlueLink reliability layer", "40G", "1965", "1355", "2090"],
    ["BlueLink link layer", "40G", "1127", "1970", "2736"],
    ["BlueLink PHY", "40G", "289", "585", "0"],
    ["BlueLink in total", "40G", "3381", "3910", "4826"],
    ["Ethernet MAC", "10G", "2986", "3817", "20972"],
    ["Ethernet PHY", "10G", "100", "94", "0"],
    ["Ethernet in total", "10G", "3086", "3911", "20972"],
];

/// Table I, systems with reliable transmission.
pub(super) const TABLE_1_RELIABLE: [Line; 13] = [
    ["TCP/IP in hardware, Ethernet", "10G", "< 30000", "not quoted", "not quoted"],
    ["TCP datapath (Virtex 6)", "10G", "6875", "3889", "221184"],
    ["SerialLite II (Stratix II)", "6G", "1448", "1236", "90624"],
    ["SerialLite II (Stratix II)", "24G", "2573", "1659", "176640"],
    ["PCIe hard IP", "5G", "100", "100", "0"],
    ["PCIe hard IP", "40G", "200", "200", "0"],
    ["PCIe soft IP (Stratix IV)", "5G", "5500", "4100", "82944"],
    ["PCIe soft IP (Stratix IV)", "20G", "7100", "5100", "239616"],
    ["Serial RapidIO", "5G", "5700", "7885", "737280"],
    ["Serial RapidIO", "20G", "7200", "10728", "901120"],
    ["Fibre Channel (Stratix IV)", "8G", "3300", "3900", "6144"],
    ["InfiniBand LLC and TCA", "40G", "64105", "63185", "1584846"],
    ["BlueLink (table II)", "10G", "2009", "1938", "3050"],
];

/// Table I, systems without.
pub(super) const TABLE_1_UNRELIABLE: [Line; 16] = [
    ["InfiniBand TCA", "40G", "36658", "39912", "1536807"],
    ["SerialLite II (Stratix II)", "6G", "863", "818", "50688"],
    ["SerialLite III", "120G", "5600", "6200", "983040"],
    ["Aurora 8B/10B", "12G", "3473", "3319", "75776"],
    ["Aurora 64B/66B", "14G", "1600", "1600", "37920"],
    ["Aurora 64B/66B", "56G", "3500", "3900", "43172"],
    ["1000Mb Ethernet MAC", "1G", "1184", "1704", "204976"],
    ["1000base-X Ethernet MAC", "1G", "1805", "2365", "204976"],
    ["10/100/1000Mb Ethernet MAC", "1G", "3155", "3522", "328064"],
    ["10/100/1000Mb Ethernet MAC", "12 x 1G", "27360", "29272", "1479168"],
    ["10Gb Ethernet MAC", "10G", "2001", "3077", "0"],
    ["40Gb Ethernet MAC", "40G", "13600", "23500", "184320"],
    ["100Gb Ethernet MAC", "100G", "45100", "87700", "573440"],
    ["Interlaken 100G", "124G", "18900", "36800", "778240"],
    ["Interlaken 50G", "50G", "12200", "26300", "942080"],
    ["Interlaken 20G (Stratix IV)", "25G", "12229", "16774", "479232"],
];

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> u64 {
        text.parse().expect("a number")
    }

    #[test]
    fn the_parts_of_table_2_add_up_to_its_totals() {
        for parts in [&TABLE_2[0..4], &TABLE_2[4..8], &TABLE_2[8..11]] {
            let (total, parts) = parts.split_last().expect("a total");
            for column in 2..5 {
                assert_eq!(parts.iter().map(|part| number(part[column])).sum::<u64>(), number(total[column]));
            }
        }
        // 65 % of the logic and 15 % of the memory of Ethernet.
        let percent = |column| 100 * number(TABLE_2[3][column]) / number(TABLE_2[10][column]);
        assert_eq!((percent(2), (3050_f64 / 20972.0 * 100.0).round()), (65, 15.0));
    }
}
