//! Published areas, which no simulation gives: tables 3.1, 4.2 and 5.6 to 5.8 of the dissertation. Cards are Stratix V 5SGSMD8.

/// A table with its title and header.
pub(super) struct Table {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    /// Header first.
    pub(super) rows: &'static [&'static [&'static str]],
}

pub(super) const TABLES: [Table; 5] = [
    Table {
        file: "table-3.1.svg",
        title: "Links (table 3.1), as published",
        rows: &[
            &["", "Interlaken", "SerialLite III"],
            &["ALMs", "240", "1080"],
            &["combinational ALUTs", "394", "1380"],
            &["registers", "427", "2525"],
            &["memory bits, DSP blocks", "0", "0"],
        ],
    },
    Table {
        file: "table-4.2.svg",
        title: "Wormhole routers (table 4.2), as published",
        rows: &[
            &["virtual channels", "switch", "reduction tree", "ALMs", "% of the card"],
            &["1", "6x6", "3x2", "12980", "5"],
            &["2", "12x6", "3x2x2", "18980", "7"],
            &["3", "18x6", "3x3x2", "24860", "9"],
            &["4", "24x6", "3x2x2x2", "30980", "12"],
            &["5, 6", "30x6, 36x6", "3x3x2x2", "42470", "16"],
            &["7, 8", "42x6, 48x6", "3x2x2x2x2", "54980", "21"],
            &["9", "54x6", "3x3x3x2", "60500", "23"],
        ],
    },
    Table {
        file: "table-5.6.svg",
        title: "Routers for collectives on 4 x 4 x 4 (table 5.6), as published",
        rows: &[&["", "RPM, online", "OCR, offline"], &["ALMs", "56177", "40895"], &["% of the card", "21", "16"]],
    },
    Table {
        file: "table-5.7.svg",
        title: "Bits of OCR's tables on 4 x 4 x 4 (table 5.7), as published",
        rows: &[
            &["pattern", "multicast", "reduction"],
            &["all-to-all", "6968", "61.7 K"],
            &["bit rotation", "1122", "10 K"],
            &["nearest neighbours", "2928", "25.5 K"],
        ],
    },
    Table {
        file: "table-5.8.svg",
        title: "Depth of input buffers (table 5.8), packets, as published",
        rows: &[
            &["pattern", "operation", "online", "offline"],
            &["all-to-all", "multicast", "1532", "1132"],
            &["all-to-all", "reduction", "367", "288"],
            &["bit rotation", "multicast", "91", "57"],
            &["bit rotation", "reduction", "1", "1"],
            &["nearest neighbours", "multicast", "277", "157"],
            &["nearest neighbours", "reduction", "14", "9"],
        ],
    },
];

#[cfg(test)]
mod tests {
    use fpga_select::novog::wormhole::Switch;

    use super::*;

    /// What `tune` takes for the area of a configuration is this table.
    #[test]
    fn the_areas_of_tune_are_those_of_table_4_2() {
        let table = TABLES.iter().find(|table| table.file == "table-4.2.svg").expect("table 4.2");
        for row in &table.rows[1..] {
            let [alms, percent] = [row[3], row[4]].map(|text| text.parse().expect("a number"));
            for channels in row[0].split(", ").map(|text| text.parse().expect("a number")) {
                let known = Switch::of(channels).expect("a switch");
                assert_eq!((known.alms, known.percent), (alms, percent), "{channels} channels");
            }
        }
        assert!(TABLES.iter().all(|table| table.rows.iter().all(|row| row.len() == table.rows[0].len())));
    }
}
