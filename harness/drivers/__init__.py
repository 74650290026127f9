"""How a user reaches the engine other than by ``deepspeed.initialize``, one module per library.

Importing them imports neither torch nor the library; calling them does.
"""
