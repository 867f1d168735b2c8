"""The runtime library: collectives with deadlines whose failure all ranks agree upon, and groups that form again.

`agreement` decides and does nothing else; `hub` is the process that runs it, `link` a rank's connection to it; `group`
makes torch do what was decided; `session` is a rank's state, `calls` and `recovery` are what users call.  The protocol:
docs/runtime-protocol.md.
"""
