#!/usr/bin/env bash
# Creates the secrets of a cluster in a new folder: deploy/make-secrets.sh FOLDER. The host names are those
# of the services in compose.yaml and kubernetes/stores.yaml; edit api.toml and director.toml for others.
#
#   postgres.password   the password of the role `tidegate`
#   valkey.conf         the configuration of Valkey or Redis that sets its password
#   api.toml            the URLs of both, for `tidegate api --config`
#   director.toml       the URL of Redis, for `tidegate director --config`
#   directors.token     the token that directors and API processes share
#   admin.token         a token for clients, of an administrator
#   tokens              its hash, for `tidegate api --tokens-file`
set -euo pipefail
[ $# = 1 ] || { echo "usage: deploy/make-secrets.sh FOLDER" >&2; exit 64; }
folder=$1
[ ! -e "$folder" ] || { echo "'$folder' exists already; remove it to create new secrets" >&2; exit 1; }

random() { od --address-radix=n --format=x1 --read-bytes=32 /dev/urandom | tr -d ' \n'; }

# The folder protects the files. They are readable in it, because the processes in the containers that they
# are mounted in have other user ids.
mkdir --mode=700 --parents "$folder"
umask 022
postgres=$(random) redis=$(random)
echo "$postgres" >"$folder/postgres.password"
echo "requirepass $redis" >"$folder/valkey.conf"
echo "redis = \"redis://:$redis@valkey:6379\"" >"$folder/director.toml"
{
    echo "postgres = \"postgresql://tidegate:$postgres@postgres:5432/tidegate\""
    cat "$folder/director.toml"
} >"$folder/api.toml"
random >"$folder/directors.token"
random >"$folder/admin.token"
echo "sha256:$(sha256sum "$folder/admin.token" | cut -d ' ' -f 1) ops admin" >"$folder/tokens"
echo "created the secrets in $folder; the token for clients is in $folder/admin.token"
