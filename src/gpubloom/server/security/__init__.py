"""What guards every request, whoever sends it: hosts, origins, sizes, headers, rates, secrets at rest.

It knows requests and bytes, not accounts; who somebody is gets decided in `accounts`.
"""
