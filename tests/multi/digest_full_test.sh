#!/bin/sh
# The whole table of digests: layouts change no bit.
exec "$TUTTI_SOURCE_DIR/tools/digests" --build "$TUTTI_BINARY_DIR"
