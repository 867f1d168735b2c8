"""The store that nodes meet at: node 0 listens on the master port, all others connect.

One TCP connection per node for the whole check.  `wire` is the format, `hub` node 0's side, `link` a node's side,
`contact` how a node gets through (and why not), `identify` what else may be speaking on a port, `datagram` the UDP
call of a node whose TCP connection gets no answer.
"""
