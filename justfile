# Names for the scripts of `.ci` and `packaging`, which say what they need: `just --list`.

# What a change must pass
gate:
    .ci/run

# Words, rooms, lines of code, fields of manifests: seconds
quick:
    .ci/words && .ci/plain && .ci/rooms && .ci/lines && .ci/published

# Parts of the nightly run, such as `just nightly oldest deny`
nightly *PARTS:
    .ci/nightly {{PARTS}}

# Blocks, links and messages of the guide; pages and keys that differ are written by the tests
guide:
    GUIDE=write cargo test --workspace guide
    .ci/guide

# The package for Debian
deb:
    packaging/deb


# The program for any Linux, in one file
static:
    packaging/static

# An image for podman and docker with that file alone
oci:
    packaging/oci
