#!/usr/bin/env bash
# Installs the Debian packages that are missing:
#   scripts/apt.sh libfaketime …
set -euo pipefail

missing=()
for package in "$@"; do
    dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
echo "installing ${missing[*]}"
$sudo apt-get update -qq && $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
