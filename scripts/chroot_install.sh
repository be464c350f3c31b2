#!/usr/bin/env bash
# Runs the steps of deploy/Dockerfile in an empty Debian, where no container engine is at hand.
# As root, with debootstrap and uv installed:  scripts/chroot_install.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

root=${1:-$(mktemp -d)}
release=bookworm
home=/app

# What is mounted and started below is gone with this process, whatever ends it.
[ -n "${ALONE:-}" ] || exec env ALONE=1 unshare --mount --pid --fork --kill-child "$0" "$root"

say() { printf '\n== %s\n' "$*"; }
inside() { env -i PATH=/opt/lango/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$home chroot "$@"; }
as_root() { inside "$root" "$@"; }
as_lango() { inside --userspec=10001:10001 "$root" sh -euc "cd $home && $1"; }

say "an empty Debian in $root"
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$release" "$root"
mount -t proc proc "$root/proc"
# This machine's way to the outside: its names, and the certificates it trusts.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

say "the build stage"
uv build --quiet --wheel --out-dir "$root/build/dist"
cp requirements/runtime.txt "$root/build/"
as_root python3 -m venv /opt/lango
as_root pip install --quiet --no-cache-dir --no-deps --require-hashes -r /build/runtime.txt
as_root sh -c 'pip install --quiet --no-cache-dir --no-deps /build/dist/*.whl'
as_root pip check

say "the image: a user without rights, and the health check of the Dockerfile"
as_root useradd --uid 10001 --home-dir $home --create-home lango
as_root chmod -R a-w /opt/lango
as_lango 'lango --version && lango init demo && cd demo && lango run "roll dice"'
check=$(sed -n '/^HEALTHCHECK/,/CMD/ s/.*CMD \["python", "-c", "\(.*\)"\]/\1/p' deploy/Dockerfile)
as_lango "cd demo && exec lango serve --insecure-no-auth" &
for _ in $(seq 60); do
    if inside --userspec=10001:10001 "$root" python -c "$check" 2>/dev/null; then
        say "healthy: all steps of the Dockerfile were run"
        exit 0
    fi
    sleep 1
done
echo "the server never became healthy" >&2
exit 1
