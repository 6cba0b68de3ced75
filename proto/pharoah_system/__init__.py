"""What every part of Pharoah needs of the machine it runs on: files, sockets, processes, threads and text.

The lowest package: it uses the standard library only, and nothing else of ours. The training process imports it, so an
import must stay cheap and must start nothing.
"""
