#!/bin/sh
# Makes the certificates and keys in this directory. They are material for tests and simulations only:
# the keys are public. A run replaces them all; lengths stay within an octet or two.
#
# Layout: every chain ends below one root (root.der). A chain of n certificates is sent as the leaf and
# n - 1 intermediates; the intermediates CA 1 (below the root), CA 2 and CA 3 are common to all chains.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
from=20260101000000Z
until=20460101000000Z

cat > "$work/ca.cnf" <<'CNF'
[ca]
default_ca = this
[this]
new_certs_dir = $ENV::work
database = $ENV::work/index.txt
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
organizationName = optional
commonName = supplied
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:aaa.usher.test
[client]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = email:station@usher.test
[req]
distinguished_name = dn
[dn]
CNF
export work
: > "$work/index.txt"

# certificate NAME COMMON-NAME EXTENSIONS ISSUER: key and certificate in $work; an issuer "-" signs itself.
certificate() {
    openssl genrsa -out "$work/$1.pem" 2048 2>/dev/null
    openssl req -new -config "$work/ca.cnf" -key "$work/$1.pem" -out "$work/$1.csr" \
        -subj "/O=Usher test network/CN=$2"
    if [ "$4" = - ]; then
        set -- "$1" "$2" "$3" "$1" -selfsign
    else
        set -- "$1" "$2" "$3" "$4" -cert "$work/$4.crt"
    fi
    name=$1 extensions=$3 issuer=$4
    shift 4
    openssl ca -batch -notext -config "$work/ca.cnf" -extensions "$extensions" -startdate $from -enddate $until \
        -keyfile "$work/$issuer.pem" -in "$work/$name.csr" -out "$work/$name.crt" "$@" 2>/dev/null
    openssl x509 -in "$work/$name.crt" -outform DER -out "$name.der"
}

# key NAME: the private key as PKCS #8, beside its certificate.
key() {
    openssl pkcs8 -topk8 -nocrypt -in "$work/$1.pem" -outform DER -out "$1.key.der"
}

certificate root "Usher root authority" authority -
certificate ca1 "Usher issuing authority 1" authority root
certificate ca2 "Usher issuing authority 2" authority ca1
certificate ca3 "Usher issuing authority 3" authority ca2
for chain in 1 2 3 4; do
    case $chain in 1) above=root ;; *) above=ca$((chain - 1)) ;; esac
    certificate "server$chain" "aaa.usher.test" server $above
    key "server$chain"
    certificate "client$chain" "station@usher.test" client $above
    key "client$chain"
done
certificate foreign-root "Another root authority" authority -
certificate foreign-client "station@other.test" client foreign-root
key foreign-client
rm foreign-root.der
