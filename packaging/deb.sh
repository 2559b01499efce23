#!/usr/bin/env bash
# Build dlsched_VERSION_ARCH.deb: the program with all that it needs under /opt/dlsched, the units,
# the user, the folders and the manual pages. Run it where Python is of the same minor version as
# the target's, for example in a container of the target's Debian.
#
#     packaging/deb.sh FOLDER [PYTHON]
#
# Needs dpkg-deb, pip and a package index; each package must have the hash in constraints.txt.
set -euo pipefail
folder=$(realpath "$1") python=${2:-python3}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minor=$("$python" -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
next=${minor%.*}.$((${minor#*.} + 1))
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# the environment, made here and used at /opt/dlsched: no path of this machine may stay in it
home=$root/opt/dlsched
"$python" -m venv --without-pip "$home"
install=("$python" -m pip --python "$home/bin/python" install --quiet --no-compile --no-warn-script-location)
"${install[@]}" --require-hashes -r packaging/constraints.txt
"${install[@]}" --no-deps .
version=$("$home/bin/dlsched" --version | cut -d' ' -f2)
"$home/bin/dlsched" admin man-pages "$root/usr/share/man/man1" >/dev/null
gzip --best --no-name "$root"/usr/share/man/man1/*
find "$home/bin" -type f -exec grep -Ilq '^#!' {} \; -exec sed -i "1s|^#!$home|#!/opt/dlsched|" {} +
rm -f "$home"/bin/[Aa]ctivate*
ln -sf "/usr/bin/python$minor" "$home/bin/python"
ln -sf python "$home/bin/python3"
ln -sf python "$home/bin/python$minor"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$minor" >"$home/pyvenv.cfg"
find "$home" -name direct_url.json -delete
find "$home" -depth -name __pycache__ -exec rm -rf {} +
"$python" -m compileall -q -s "$root" -p / "$home/lib" || true # some packages ship Python 2 examples

install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*
install -D -m 644 -t "$root/usr/lib/sysusers.d" packaging/sysusers.d/dlsched.conf
install -D -m 644 -t "$root/usr/lib/tmpfiles.d" packaging/tmpfiles.d/dlsched.conf
install -D -m 644 -t "$root/usr/share/dlsched/monitoring" packaging/monitoring/*
install -D -m 644 -t "$root/usr/share/doc/dlsched" README.md
"$python" .ci/changelog.py >"$root/usr/share/doc/dlsched/CHANGELOG.md"
mkdir -p "$root/usr/bin" "$root/DEBIAN"
ln -s /opt/dlsched/bin/dlsched "$root/usr/bin/dlsched"

cat >"$root/DEBIAN/control" <<CONTROL
Package: dlsched
Version: $version
Architecture: $arch
Maintainer: dlsched maintainers <root@localhost>
Depends: python3 (>= $minor), python3 (<< $next), systemd
Section: admin
Priority: optional
Description: batch system for deep-learning GPU clusters
 A scheduler daemon, node agents and the command line. Nothing is started by the
 installation: see /usr/share/doc/dlsched and docs/deploying.md.
CONTROL
cat >"$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
systemd-sysusers dlsched.conf
systemd-tmpfiles --create dlsched.conf
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTINST
cat >"$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
# Jobs run on without the services; an upgrade restarts nothing by itself.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now dlsched-daemon.service dlsched-agent.service dlsched-login.service
fi
PRERM
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
chmod -R go-w "$root"
mkdir -p "$folder"
dpkg-deb --root-owner-group -Zgzip --build "$root" "$folder/dlsched_${version}_$arch.deb" >/dev/null
echo "$folder/dlsched_${version}_$arch.deb"
