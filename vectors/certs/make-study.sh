#!/bin/sh
# Makes the certificates and keys of long/ and ecdsa/: for studies of IKEv2 only, the keys are public. A run replaces them all.
#
# Layout as that of make.sh: every chain ends below one root. long/ has RSA-2048 filled up by a comment to 1500 octets each, the
# size that a paper on authentication in IKEv2 gives; ecdsa/ has P-256, with chains of two at most.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
from=20260101000000Z
until=20460101000000Z

# The comment is of as many octets as FILL says.
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

# certificate FOLDER NAME COMMON-NAME EXTENSIONS ISSUER: key and certificate in $work; an issuer "-" signs itself.
certificate() {
    folder=$1 name=$2 common=$3 extensions=$4 issuer=$5
    case $folder in
        long) openssl genrsa -out "$work/$folder-$name.pem" 2048 2>/dev/null ;;
        *) openssl ecparam -name prime256v1 -genkey -noout -out "$work/$folder-$name.pem" ;;
    esac
    openssl req -new -config "$work/ca.cnf" -key "$work/$folder-$name.pem" -out "$work/$folder-$name.csr" \
        -subj "/O=Usher test network/CN=$common"
    fill=
    while :; do
        cp "$work/ca.cnf" "$work/filled.cnf"
        if [ -n "$fill" ]; then
            sed -i "s/^\[$extensions\]\$/&\nnsComment = $(head -c "$fill" /dev/zero | tr '\0' x)/" "$work/filled.cnf"
        fi
        if [ "$issuer" = - ]; then
            openssl ca -batch -notext -config "$work/filled.cnf" -extensions "$extensions" -startdate $from -enddate $until \
                -keyfile "$work/$folder-$name.pem" -in "$work/$folder-$name.csr" -out "$work/$folder-$name.crt" -selfsign 2>/dev/null
        else
            openssl ca -batch -notext -config "$work/filled.cnf" -extensions "$extensions" -startdate $from -enddate $until \
                -keyfile "$work/$folder-$issuer.pem" -cert "$work/$folder-$issuer.crt" \
                -in "$work/$folder-$name.csr" -out "$work/$folder-$name.crt" 2>/dev/null
        fi
        openssl x509 -in "$work/$folder-$name.crt" -outform DER -out "$folder/$name.der"
        size=$(wc -c < "$folder/$name.der")
        # A serial number has an octet more or less, an ECDSA signature two: they are drawn again.
        case $folder in
            ecdsa) break ;;
            long)
                [ "$name" = root ] && break
                [ "$size" -eq 1500 ] && break
                if [ -z "$fill" ]; then fill=$((1500 - size - 20)); else fill=$((fill + 1500 - size)); fi ;;
        esac
    done
}

# key FOLDER NAME: the private key as PKCS #8, beside its certificate.
key() {
    openssl pkcs8 -topk8 -nocrypt -in "$work/$1-$2.pem" -outform DER -out "$1/$2.key.der"
}

mkdir -p long ecdsa
for folder in long ecdsa; do
    certificate $folder root "Usher root authority" authority -
    certificate $folder ca1 "Usher issuing authority 1" authority root
done
certificate long ca2 "Usher issuing authority 2" authority ca1
certificate long ca3 "Usher issuing authority 3" authority ca2
for chain in 1 2 3 4; do
    case $chain in 1) above=root ;; *) above=ca$((chain - 1)) ;; esac
    for folder in long ecdsa; do
        if [ $folder = ecdsa ] && [ $chain -gt 2 ]; then continue; fi
        certificate $folder "server$chain" "aaa.usher.test" server $above
        key $folder "server$chain"
        certificate $folder "client$chain" "station@usher.test" client $above
        key $folder "client$chain"
    done
done
