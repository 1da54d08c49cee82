"""Replicas of the parameters that trainers keep together while each trains on its own: ShadowSync and its relatives.

Three independent choices make a synchronizer: a rule (`rules.py`), who averages with whom (`topology.py`) and how often
(`pace.py`).
"""
