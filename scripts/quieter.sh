#!/usr/bin/env bash
# Shows of pip's and cargo's talk one line per crate, so that a long build is seen to go on.
exec grep --line-buffered -E '^ *(Compiling|Finished|Building|Installing|Successfully|error|warning: unused)|^ *error|[Ee]rror:' || true
