"""Replicas of the parameters that trainers keep together while each trains on its own: ShadowSync and its relatives.

Three choices make a synchronizer (`synchronizer.py`): a rule (`rules.py`), who averages with whom (`topology.py`), and
how often: every k iterations, or in the background.
"""
