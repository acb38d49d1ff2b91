
/* @NAME@ @VERB@ channel @ID@. */
channel @TYPE@ @NAME@ __attribute__((depth(@DEPTH@)));
channel uint16 circus_packets_@NAME@ __attribute__((depth(2)));
