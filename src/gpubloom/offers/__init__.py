"""What GPUs cost where: a dated price table, offers for a job, the choice and its reasons, budgets, meters.

Knows how fast a GPU is (`plan`) and what a script needs (`scripts`); not how a job is started.
"""

from gpubloom.offers.budget import (
    Attempt,
    Budget,
    Decision,
    Meter,
    Rate,
    RentalLimits,
    decide,
    default_limits,
    warnings_due,
)
from gpubloom.offers.choosing import archetype_of, choose
from gpubloom.offers.need import Need
from gpubloom.offers.offer import Choice, Constraints, Cost, Excluded, Offer, Offers, is_named
from gpubloom.offers.offering import local_rows, offers
from gpubloom.offers.prices import (
    PriceRow,
    PricesProblem,
    PriceTable,
    ProviderFacts,
    Span,
    in_force,
    load_prices,
    merge,
    shipped_prices,
)

__all__ = [
    "Attempt",
    "Budget",
    "Choice",
    "Constraints",
    "Cost",
    "Decision",
    "Excluded",
    "Meter",
    "Need",
    "Offer",
    "Offers",
    "PriceRow",
    "PriceTable",
    "PricesProblem",
    "ProviderFacts",
    "Rate",
    "RentalLimits",
    "Span",
    "archetype_of",
    "choose",
    "decide",
    "default_limits",
    "in_force",
    "is_named",
    "load_prices",
    "local_rows",
    "merge",
    "offers",
    "shipped_prices",
    "warnings_due",
]
