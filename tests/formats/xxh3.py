"""XXH3-64 with seed 0 of 17 to 240 bytes, from its specification."""
import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
    "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b"
    "16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
PRIME = 0x9e3779b185ebca87
LAST = 136 - 17


def mix(data, at, secret):
    low, high = struct.unpack_from("<QQ", data, at)
    key_low, key_high = struct.unpack_from("<QQ", SECRET, secret)
    product = (low ^ key_low) * (high ^ key_high)
    return (product ^ product >> 64) % 2**64


def avalanche(value):
    value = (value ^ value >> 37) * 0x165667919e3779f9 % 2**64
    return value ^ value >> 32


def xxh3(data):
    count = len(data)
    if not 17 <= count <= 240:
        raise ValueError(f"{count} bytes")
    total = count * PRIME
    if count <= 128:
        for pair in range((count - 1) // 32 + 1):
            total += mix(data, 16 * pair, 32 * pair)
            total += mix(data, count - 16 * (pair + 1), 32 * pair + 16)
        return avalanche(total % 2**64)
    for block in range(8):
        total += mix(data, 16 * block, 16 * block)
    total = avalanche(total % 2**64)
    for block in range(8, count // 16):
        total += mix(data, 16 * block, 16 * (block - 8) + 3)
    return avalanche((total + mix(data, count - 16, LAST)) % 2**64)
